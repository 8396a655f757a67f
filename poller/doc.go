// Package poller asks a source for work, never for more than there is room
// for, and sleeps only when the source said that nothing is left.
//
// Refill is driven by completion: the poller asks again as slots come free. The
// sleep is interval·(1 ± jitter), ends early at the next instant the source
// knows of, and at a Wake.
package poller
