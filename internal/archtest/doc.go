// Package archtest holds the rules of the house that a compiler does not
// enforce, as tests that read the source: who may import whom, where
// goroutines begin, where a clock is read, how long files and functions get,
// what must be documented, and which words are not used.
//
// Each rule is a function from a tree of files to findings, and each has a
// fixture that shows it failing: a rule that cannot fail proves nothing. An
// exception is an entry of a table with its reason; an entry that no longer
// excuses anything is a finding itself.
package archtest
