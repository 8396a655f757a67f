// Package wire is what the API, the pages and the commands have in common where texts
// come in and go out: filters in queries, instants, JSON bodies and refusals.
//
// Everything that is wrong with a request is reported together. Begin reading at
// params.go.
package wire
