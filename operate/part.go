package operate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// Part is which part of a list is wanted, of a list that is sorted by name. The zero Part is
// all of it.
type Part struct {
	Names []string // only these; empty: all
	After string   // the Next of the part before; empty: from the first on
	Limit int      // at most so many; zero: any number
}

// place is where something is in a list: by its name, and by what distinguishes it from others of
// the name.
type place struct{ name, more string }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.name, other.name), cmp.Compare(p.more, other.more))
}

// cursor is a place as a Part has it.
func (p place) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.name + "\x00" + p.more))
}

// placeOf reads a cursor.
func placeOf(cursor string) (place, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	name, more, ok := strings.Cut(string(text), "\x00")
	if err != nil || !ok || cursor != (place{name, more}).cursor() {
		return place{}, fmt.Errorf("%w: cursor %.100q: want the next of an earlier page", store.ErrInvalid, cursor)
	}
	return place{name, more}, nil
}

// wantedMost bounds a name by which something is looked for, in bytes. It is more than any
// has.
const wantedMost = 1000

// checkWanted refuses a name by which nothing can be found, before any store is asked.
func checkWanted(name string) error {
	if name == "" || len(name) > wantedMost || !storable.IsText(name) {
		return fmt.Errorf("%w: name %q: want 1 to %d bytes of text without NUL", store.ErrInvalid, storable.Clip(name, 150), wantedMost)
	}
	return nil
}

// cut sorts a list by the places of what it lists, and keeps the wanted part. next is the
// After of the part that follows; nil: there is none.
func cut[T any](list []T, part Part, at func(*T) place) (kept []T, next *string, err error) {
	if part.Limit < 0 {
		return nil, nil, fmt.Errorf("%w: limit %d: want 1 or more", store.ErrInvalid, part.Limit)
	}
	names := map[string]bool{}
	for _, name := range part.Names {
		if err := checkWanted(name); err != nil {
			return nil, nil, err
		}
		names[name] = true
	}
	var after place
	if part.After != "" {
		if after, err = placeOf(part.After); err != nil {
			return nil, nil, err
		}
	}
	kept = []T{}
	for i := range list {
		here := at(&list[i])
		if (len(names) == 0 || names[here.name]) && (part.After == "" || here.compare(after) > 0) {
			kept = append(kept, list[i])
		}
	}
	slices.SortStableFunc(kept, func(a, b T) int { return at(&a).compare(at(&b)) })
	if part.Limit > 0 && len(kept) > part.Limit {
		kept = kept[:part.Limit]
		cursor := at(&kept[part.Limit-1]).cursor()
		next = &cursor
	}
	return kept, next, nil
}
