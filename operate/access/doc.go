// Package access decides who may do what over HTTP. It is a handler in front
// of the JSON API and of the pages, or of handlers of your own.
//
//	handler, err := access.Handler(inner, access.Config{Auth: access.Tokens(operatorToken, viewerToken)})
//	server := access.Server(handler, logger)
//
// It is closed by default: without an Auth there is no handler. Requests pass, in this
// order, a bound on how many there are, limits of their sizes, a check of the host they
// name, the Auth, a check that no other site has made a browser send them, and the rule
// that a Viewer only reads. The inner handler asks WhoFrom
// who it is.
//
// The package needs nothing but the standard library. Begin reading at handler.go.
package access
