package store

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	limitKinds = map[LimitKind]string{ //nolint:gochecknoglobals // a constant table
		LimitSemaphore: "semaphore", LimitFixedWindow: "fixed-window", LimitSlidingWindow: "sliding-window",
		LimitTokenBucket: "token-bucket", LimitDynamicWindow: "dynamic-window",
	}
	limitActions = map[LimitAction]string{ //nolint:gochecknoglobals // a constant table
		FullDefault: "default", FullWait: "wait", FullRetry: "retry", FullDrop: "drop", FullFail: "fail", FullCancelOldest: "cancel-oldest",
	}
	limitStates = map[LimitState]string{ //nolint:gochecknoglobals // a constant table
		LimitActive: "active", LimitDraining: "draining", LimitOff: "off", LimitRemoved: "removed",
	}
	limitUntils = map[LimitUntil]string{ //nolint:gochecknoglobals // a constant table
		UntilSettled: "settled", UntilFinished: "finished", UntilFinishedOrRevived: "finished-or-revived", UntilExpires: "expires",
	}
	limitModes = map[LimitMode]string{ //nolint:gochecknoglobals // a constant table
		LimitAcquireAndRelease: "acquire-and-release", LimitAcquire: "acquire", LimitRelease: "release",
	}
)

// word is the word of a value in one of the tables above.
func word[T ~int16 | ~uint8](words map[T]string, what string, value T) string {
	if text, ok := words[value]; ok {
		return text
	}
	return fmt.Sprintf("%s(%d)", what, int(value))
}

// valueOf is the value of a word in one of the tables above.
func valueOf[T ~int16 | ~uint8](words map[T]string, what string, text []byte, to *T) error {
	for value, word := range words {
		if word == string(text) {
			*to = value
			return nil
		}
	}
	known := slices.Collect(maps.Values(words))
	slices.Sort(known)
	return fmt.Errorf("%q is not a %s: want %s", text, what, strings.Join(known, ", "))
}

// String returns the kind's word.
func (k LimitKind) String() string { return word(limitKinds, "limit kind", k) }

// MarshalText writes the kind's word.
func (k LimitKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's word.
func (k *LimitKind) UnmarshalText(text []byte) error {
	return valueOf(limitKinds, "kind of limit", text, k)
}

// String returns the action's word.
func (a LimitAction) String() string { return word(limitActions, "limit action", a) }

// MarshalText writes the action's word.
func (a LimitAction) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the action's word.
func (a *LimitAction) UnmarshalText(text []byte) error {
	return valueOf(limitActions, "limit's action", text, a)
}

// String returns the state's word.
func (s LimitState) String() string { return word(limitStates, "limit state", s) }

// MarshalText writes the state's word.
func (s LimitState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's word.
func (s *LimitState) UnmarshalText(text []byte) error {
	return valueOf(limitStates, "state of a limit", text, s)
}

// String returns the word of what ends a permit.
func (u LimitUntil) String() string {
	return word(limitUntils, "limit until", u)
}

// MarshalText writes the word of what ends a permit.
func (u LimitUntil) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads the word of what ends a permit.
func (u *LimitUntil) UnmarshalText(text []byte) error {
	return valueOf(limitUntils, "thing that ends a permit", text, u)
}

// String returns the mode's word.
func (m LimitMode) String() string { return word(limitModes, "limit mode", m) }

// String returns the use as ParseLimitUse reads it, such as
//
//	tenant=acme
//	github*2
//	mutex!finished!drop=tenant:eu
//
// the limit, "*" and its weight, "!" and each term that is not the default, "="
// and the key. The weight, the terms and the key may be missing. Stores keep
// this text with a run.
func (u *LimitUse) String() string {
	var b strings.Builder
	b.WriteString(u.Limit)
	if u.Weight > 1 {
		b.WriteString("*" + strconv.Itoa(u.Weight))
	}
	for _, term := range u.terms() {
		b.WriteString("!" + term)
	}
	if u.Key != "" {
		b.WriteString("=" + u.Key)
	}
	return b.String()
}

func (u *LimitUse) terms() (terms []string) {
	if u.Until != 0 && u.Until != UntilSettled && u.Mode == LimitAcquireAndRelease {
		terms = append(terms, u.Until.String())
	}
	switch {
	case u.WhenFull == FullDefault:
	case u.RetryAfter != 0:
		terms = append(terms, u.WhenFull.String()+":"+u.RetryAfter.String())
	default:
		terms = append(terms, u.WhenFull.String())
	}
	switch u.Mode {
	case LimitAcquire:
		terms = append(terms, "acquire:"+u.OwnedFor.String()+":"+url.QueryEscape(u.Owner))
	case LimitRelease:
		terms = append(terms, "release:"+url.QueryEscape(u.Owner))
	}
	return terms
}

// ParseLimitUse reads what LimitUse.String has written. It checks the form only:
// CheckLimitUses checks what it says.
func ParseLimitUse(text string) (LimitUse, error) {
	head, key, _ := strings.Cut(text, "=")
	parts := strings.Split(head, "!")
	name, weight, weighted := strings.Cut(parts[0], "*")
	use := LimitUse{Limit: name, Key: key}
	if weighted {
		k, err := strconv.Atoi(weight)
		if err != nil || k < 1 {
			return LimitUse{}, fmt.Errorf("limit %q: weight %q: want a whole number of 1 or more", text, weight)
		}
		use.Weight = k
	}
	for _, term := range parts[1:] {
		if err := use.setTerm(term); err != nil {
			return LimitUse{}, fmt.Errorf("limit %q: %w", text, err)
		}
	}
	return use, nil
}

func (u *LimitUse) setTerm(term string) (err error) {
	first, rest, _ := strings.Cut(term, ":")
	switch first {
	case "acquire":
		length, owner, _ := strings.Cut(rest, ":")
		u.Mode, u.Until = LimitAcquire, UntilExpires
		if u.OwnedFor, err = time.ParseDuration(length); err != nil {
			return err
		}
		u.Owner, err = url.QueryUnescape(owner)
		return err
	case "release":
		u.Mode = LimitRelease
		u.Owner, err = url.QueryUnescape(rest)
		return err
	case "retry":
		u.WhenFull = FullRetry
		if rest != "" {
			u.RetryAfter, err = time.ParseDuration(rest)
		}
		return err
	}
	if u.Until.UnmarshalText([]byte(term)) == nil {
		return nil
	}
	if err := u.WhenFull.UnmarshalText([]byte(term)); err != nil {
		return fmt.Errorf("%q is not a term of a limit", term)
	}
	return nil
}
