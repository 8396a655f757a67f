package store

import (
	"strings"
	"time"
)

// ZonedTime is an instant with its time zone, as RFC 9557 writes it:
// "2026-03-01T00:00:00+01:00[Europe/Berlin]", and "2026-03-01T00:00:00Z" in UTC.
// It keeps the offset, so that its date is the same wherever it is read, also where
// zone data are missing or say something else by now. Empty: none.
type ZonedTime string

// ZonedTimeOf writes an instant with the zone of its location; the zero time is none.
func ZonedTimeOf(t time.Time) ZonedTime {
	if t.IsZero() {
		return ""
	}
	text := t.Format(time.RFC3339Nano)
	if zone := t.Location().String(); zone != "UTC" && zone != "" {
		text += "[" + zone + "]"
	}
	return ZonedTime(text)
}

// Time returns the instant in its zone; false: there is none, or it cannot be
// read. Where the zone is not known, or has another offset at that instant by now,
// the location is the stored offset under the zone's name.
func (z ZonedTime) Time() (time.Time, bool) {
	t, ok := z.fixed()
	if !ok {
		return time.Time{}, false
	}
	zone, err := time.LoadLocation(t.Location().String())
	if err != nil {
		return t, true
	}
	known := t.In(zone)
	_, offset := t.Zone()
	if _, now := known.Zone(); now != offset {
		return t, true
	}
	return known, true
}

// Fixed returns the instant at its offset, in a location that has the zone's name but
// none of its other offsets; nil: there is none, or it cannot be read. It reads no
// zone data.
func (z ZonedTime) Fixed() *time.Time {
	t, ok := z.fixed()
	if !ok {
		return nil
	}
	return &t
}

func (z ZonedTime) fixed() (time.Time, bool) {
	text, zone, named := strings.Cut(string(z), "[")
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, false
	}
	zone, closed := strings.CutSuffix(zone, "]")
	if !named {
		return t.UTC(), true
	}
	if !closed || zone == "" {
		return time.Time{}, false
	}
	_, offset := t.Zone()
	return t.In(time.FixedZone(zone, offset)), true
}
