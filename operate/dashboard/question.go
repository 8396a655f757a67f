package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// question asks before something is changed, or what to change it to. It says what will
// happen.
type question struct {
	To     string // address that the answer is sent to
	Title  string
	Says   string
	Verb   string // on the button
	Keep   string // on the other one
	Danger bool
	Word   string // to be typed; empty: none
	Reason bool   // whether the audit log takes one
	Fields []hiddenField
	Rows   [][]input
	Fault  string // what was wrong with the answer
	Back   string

	Second    string // another button, that changes nothing; empty: none
	Times     []time.Time
	Previewed bool // Times are what was asked for by it
}

// input is one value that is asked for.
type input struct {
	Name, Label, Value, Note, Hint string
	Kind                           string // long, numeric, or empty for a line of text
	Choices                        []choice
}

// ask is the page of a question. It names the object in fields, by which the answer
// finds it again.
func (r *request) ask(section string, q question, fields ...string) view {
	for i := 0; i+1 < len(fields); i += 2 {
		q.Fields = append(q.Fields, hiddenField{fields[i], fields[i+1]})
	}
	if q.Keep == "" {
		q.Keep = "Keep"
	}
	if q.Back == "" {
		q.Back = back(r.form, section)
	}
	q.Fields = append(q.Fields, hiddenField{"back", q.Back})
	return view{page: "question", title: q.Title, section: section, data: q}
}

// again is a question whose answer was refused.
func (v view) again(err error) (view, error) {
	q, asked := v.data.(question)
	if !asked || !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
		return view{}, err
	}
	q.Fault, v.status = err.Error(), 400
	v.data = q
	return v, nil
}

// confirmed reports whether the word was typed that a question asks for.
func (r *request) confirmed(word string) error {
	if word == "" || strings.EqualFold(strings.TrimSpace(r.form.Get("word")), word) {
		return nil
	}
	return fmt.Errorf("%w: type %s to confirm", store.ErrInvalid, word)
}

// done leads back to where the person came from, with what was done.
func (r *request) done(what, otherwise string) view {
	return view{to: with(back(r.form, otherwise), url.Values{"did": {what}})}
}

// answered handles the answer to a question: it is asked again when the answer is
// refused.
func (r *request) answered(ctx context.Context, asked view, what, otherwise string, act func(ctx context.Context) error) (view, error) {
	if q, ok := asked.data.(question); ok {
		if err := r.confirmed(q.Word); err != nil {
			return asked.again(err)
		}
	}
	if err := act(ctx); err != nil {
		return asked.again(err)
	}
	return r.done(what, otherwise), nil
}
