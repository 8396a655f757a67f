// Package memory is the reference store: everything in one process, behind
// one mutex, gone when the process ends. It is the plainest reading of the
// contract in package durable, and what the other stores are compared with.
//
// It is meant for tests, for trying things out, and for work that may be lost
// with its process. It promises what durable.Store promises, durability
// excepted. Nothing is ever removed: finished runs stay until the store itself
// is garbage.
//
// The store starts no goroutine and waits on nothing but its mutex and, in
// Listen, on a channel made by that call, so it works inside a bubble of
// testing/synctest. Inputs are copied when they are stored and results are
// copied when they are returned; no memory is shared with the caller.
package memory
