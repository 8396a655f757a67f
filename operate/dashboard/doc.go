// Package dashboard serves pages for people who operate workers: what waits, what
// runs, what has failed and why, and what to do about it.
//
//	pages, err := dashboard.New(operator, dashboard.Config{Auth: access.Tokens(secret, "")})
//	mux.Handle("/ops/durable/", http.StripPrefix("/ops/durable", pages))
//
// The handler may be mounted at any path: every link is relative, so neither it nor a
// proxy in front of it has to know where. It has its templates, styles and scripts in
// it, and asks no other host for anything. Without scripts every page and every form
// works; with them the pages are live.
//
// It reads and changes everything through package operate, on behalf of the person
// that Config.Auth names. Begin reading at dashboard.go.
package dashboard
