// Package memory is the reference store: everything in one process, behind one mutex, gone
// when the process ends. It is the simplest implementation of the contract in package store,
// and the other stores are compared with it.
//
// It is meant for tests, for trying things out, and for work that may be lost
// with its process. It promises what store.Store promises, except durability.
//
// The store starts no goroutine and waits on nothing but its mutex and, in
// Listen, on a channel made by that call, so it works inside a bubble of
// testing/synctest. Inputs are copied when they are stored and results are
// copied when they are returned; no memory is shared with the caller.
package memory
