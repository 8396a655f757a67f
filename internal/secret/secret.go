// Package secret keeps secrets out of errors.
package secret

import (
	"net/url"
	"strings"
)

// shortest is the length from which a secret is looked for, bytes: a shorter
// one is part of words that have nothing to do with it, and the marks in their
// place would reveal it.
const shortest = 4

// Scrub keeps secrets out of an error's text, whatever a driver put there. The
// error still matches what it wraps. A secret that is part of what is shown
// anyway, such as a password that is also the user's name, is left: a mark in
// its place would tell it.
func Scrub(err error, shown string, secrets ...string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, one := range secrets {
		if len(one) < shortest || strings.Contains(shown, one) {
			continue
		}
		for _, form := range []string{one, url.QueryEscape(one), url.PathEscape(one)} {
			text = strings.ReplaceAll(text, form, "…")
		}
	}
	if text == err.Error() {
		return err
	}
	return &scrubbed{text: text, err: err}
}

type scrubbed struct {
	text string
	err  error
}

func (e *scrubbed) Error() string { return e.text }

func (e *scrubbed) Unwrap() error { return e.err }
