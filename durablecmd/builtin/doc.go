// Package builtin holds the jobs of the bundled program, which make it useful
// without any Go code of its own: http posts to a URL, exec starts a program,
// log logs a line, sleep waits.
//
// http and exec do only what a list allows that the operator of the worker
// wrote. Both lists are empty unless they are given, and then every run of these
// jobs is dead immediately, with the reason. Code that may enqueue chooses only
// among what the worker's operator has allowed.
//
// # What is not promised
//
// A handler may be executed more than once, here as everywhere: the receiver of
// a request and the program started get the run's id as an idempotency key, and
// the fence, which rises with each attempt.
//
// The list of http names hosts; what a name resolves to is the business of
// who answers for the name. Addresses of the machine itself, of the
// link (where clouds answer with credentials) and some others are refused all
// the same, at the moment of the connection, unless the list says the address.
// Private networks are not, unless Config.HTTPRefusePrivate says so: that is where
// the workers in other languages are.
//
// A program that exec has started is ended with its process group. A descendant
// that has left the group, or whose worker was killed, is only ended by what
// holds the whole worker: a container, or a unit of systemd.
package builtin
