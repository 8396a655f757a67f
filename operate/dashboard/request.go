package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/store"
)

// request is one request for a page.
type request struct {
	*http.Request

	form url.Values // of the query, and of the body of a POST
	now  time.Time  // of the store's clock
	who  person
	do   *operate.Actor
}

// person is who asks.
type person struct {
	Name     string
	Operator bool // may change things
	Args     bool // may see args and results
	Texts    bool // may see errors and logs
	Known    bool // false: who asks has not logged in
	Session  bool // and may log out
}

func (d *dashboard) sees() access.Sees {
	return access.Sees{Args: d.config.Args, Texts: d.config.Texts}
}

func (d *dashboard) personOf(r *http.Request) person {
	who, sees := access.WhoFrom(r.Context()), d.sees()
	return person{Name: who.Name, Operator: who.Role >= access.Operator, Args: sees.SeesArgs(who.Role), Texts: sees.SeesTexts(who.Role),
		Known: who.Role != 0, Session: who.Way == "session"}
}

// view is a page before it is written.
type view struct {
	page    string // name of its template
	title   string
	section string // of the navigation
	data    any
	status  int    // zero: 200
	file    []byte // not nil: no page, a file of comma-separated values of the name page
	to      string // not empty: no page, the browser is to go there; relative to the root
}

// makes is a function that makes a page. An error becomes a page of its own.
type makes func(ctx context.Context, r *request) (view, error)

// pageTimeout bounds what one page asks the store for.
const pageTimeout = 5 * time.Second

// page serves what a function makes.
func (d *dashboard) page(maker makes) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(operate.ReadOnce(r.Context()), pageTimeout)
		defer cancel()
		who := access.WhoFrom(r.Context())
		asked := &request{Request: r, who: d.personOf(r)}
		asked.do = d.operator.Hiding(operate.HiddenFrom(who.Role, d.sees())).As(who.Actor())
		made, err := d.make(ctx, asked, maker)
		if err != nil {
			made = d.failed(asked, err)
		}
		d.answer(w, asked, made)
	})
}

// make reads the request and calls the function.
func (d *dashboard) make(ctx context.Context, r *request, maker makes) (view, error) {
	if err := r.ParseForm(); err != nil {
		return view{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	r.form = url.Values{}
	for name, values := range r.Form {
		for _, value := range values {
			if !storable.IsText(name) || !storable.IsText(value) {
				return view{}, fmt.Errorf("%w: %s %q: want text in UTF-8, without NUL", store.ErrInvalid, storable.Text(name, 100), clip(100, value))
			}
			r.form.Add(name, strings.ReplaceAll(value, "\r\n", "\n")) // browsers end lines so
		}
	}
	if r.who.Known {
		header, err := d.header(ctx)
		r.now = header.At
		if err != nil {
			return view{}, err
		}
	}
	return maker(ctx, r)
}

// answer writes a page.
func (d *dashboard) answer(w http.ResponseWriter, r *request, made view) {
	if made.to != "" {
		redirect(w, root(r.URL.Path)+made.to)
		return
	}
	if made.file != nil {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		w.Header().Set("Content-Disposition", "attachment; filename="+made.page)
		_, _ = w.Write(made.file) // the reader may have gone
		return
	}
	var text bytes.Buffer
	template, err := d.pages.of(made.page)
	if err == nil {
		err = template.ExecuteTemplate(&text, "layout", d.frame(r, made))
	}
	if err != nil {
		d.logger.Error("page failed", "event", "page.failed", "page", made.page, "error", err)
		http.Error(w, "this page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if made.status != 0 {
		w.WriteHeader(made.status)
	}
	_, _ = w.Write(visible(text.Bytes())) // the reader may have gone
}

// redirect sends the browser to a relative address, which is right wherever the
// pages are mounted, and behind a proxy that strips a part of the path.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// root is the way from a path to the root of the pages.
func root(path string) string {
	if depth := strings.Count(path, "/") - 1; depth > 0 {
		return strings.Repeat("../", depth)
	}
	return "./"
}

// failure is the data of a page that says what went wrong.
type failure struct {
	Code    operate.Code
	Message string
	Advice  string
}

// failed is the page for an error.
func (d *dashboard) failed(r *request, err error) view {
	code := d.operator.CodeOf(err)
	made := view{page: "failure", title: "Something went wrong", status: http.StatusInternalServerError}
	shown := failure{Code: code, Message: err.Error(), Advice: "Go back and try again."}
	if errors.Is(err, operate.ErrHidden) {
		return view{page: "failure", title: "This is for operators", status: http.StatusForbidden, data: failure{Code: "forbidden", Message: err.Error(), Advice: "Take the condition away."}}
	}
	switch code {
	case operate.NotFound, operate.UnknownJob:
		made.title, made.status = "Not found", http.StatusNotFound
		shown.Advice = "It may have been deleted, or removed when its retention was over."
	case operate.Invalid:
		made.title, made.status = "This cannot be done", http.StatusBadRequest
		shown.Advice = "Go back and correct it."
	case operate.Busy:
		made.title, made.status = "Too much is under way", http.StatusServiceUnavailable
		shown.Advice = "Try again when one of them has ended."
	case operate.Conflict:
		made.title, made.status = "Nothing was changed", http.StatusConflict
		shown.Advice = "What is stored does not allow it. It may have changed since you looked."
	default:
		made.status = http.StatusServiceUnavailable
		made.title = "The database does not answer"
		shown.Message = "Workers continue with what they have. This page tries again by itself."
		d.logger.Error("page failed", "event", "page.failed", "path", r.URL.Path, "error", err)
		if errors.Is(err, context.DeadlineExceeded) {
			shown.Advice = fmt.Sprintf("There was no answer within %v.", pageTimeout)
		} else {
			shown.Advice = "The log of the process that serves this page says why."
		}
	}
	made.data = shown
	return made
}

// nowhere is the page of an address that leads nowhere.
func (d *dashboard) nowhere(context.Context, *request) (view, error) {
	return view{page: "failure", title: "There is no such page", status: http.StatusNotFound,
		data: failure{Code: operate.NotFound, Message: "The address leads nowhere.", Advice: "The menu has every page."}}, nil
}
