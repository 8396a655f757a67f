// Package access decides who may do what over HTTP. It is a handler in front
// of the JSON API and of the pages, or of handlers of your own.
//
//	handler, err := access.Handler(inner, access.Config{Auth: access.Tokens(operatorToken, viewerToken)})
//	server := access.Server(handler, logger)
//
// It is closed by default: without an Auth there is no handler. Requests pass, in this
// order, limits of their sizes, a check of the host they name, a check that no other site
// has made a browser send them, the Auth, the rule that a Viewer only reads, a bound on how
// many are answered, and a check that their session has not ended. Until it is known who
// makes them they have places of their own, which known clients do not need. The inner
// handler asks WhoFrom who it is.
//
// The package needs nothing but the standard library. Begin reading at handler.go.
package access
