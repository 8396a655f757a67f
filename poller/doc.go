// Package poller asks a source for work, never for more than there is room
// for, and sleeps only when the source said that nothing is left.
//
// The poller asks again as soon as slots become free. Otherwise it sleeps for
// interval·(1 ± jitter), or until the next instant that the source knows of, if
// that is earlier; Wake ends the sleep.
package poller
