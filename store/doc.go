// Package store is the contract between durable and its engines: the roles that an engine
// implements, their requests and answers, and the checks that every engine makes before it
// reads anything.
//
// You need it to write a store, or to operate one. The types that handlers and
// enqueuers use daily are in package durable. Package storetest is the suite that
// a store has to pass.
//
// Begin reading at Store in store.go.
package store
