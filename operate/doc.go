// Package operate administers runs, queues, schedules and locks: what the
// commands of durable-worker do, for Go programs, and for an API or pages of
// your own.
//
//	o := operate.New(store, operate.Config{})
//	page, err := o.Runs(ctx, store.Filter{States: []store.State{store.Dead}})
//	changed, err := o.As("ann@host").Retry(ctx, "mail server is back", ids...)
//
// An Operator reads. As names the person or the program that makes changes and
// returns an Actor, whose changes the store's audit records under that name.
//
// Answers that have a JSON form are structs with tags, and CodeOf turns an error
// into a word for programs, so that everything built on this package answers
// alike. Both grow by fields, methods and words: ignore those you do not know.
//
// An Operator runs nothing in the background, except live hints while a Stream is
// open, and bulk changes begun with StartBulk until they end or Close stops them. The
// package is the only way from the commands, the API and the pages to the store.
// Begin reading at operator.go.
package operate
