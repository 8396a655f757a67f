// Package store is the contract between durable and its engines: the roles that
// an engine implements, what they take and answer, and the checks that all of
// them make before they look anything up.
//
// You need it to write a store, or to operate one; handlers and enqueuers find
// what they say daily in package durable. Package storetest is the suite that a
// store has to pass.
//
// Begin reading at Store in store.go.
package store
