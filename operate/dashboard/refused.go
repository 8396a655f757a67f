package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
)

// rooted sends who asks for the root without its slash to the one with it: links are
// relative to that.
func rooted(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "" {
			inner.ServeHTTP(w, r)
			return
		}
		asked, _, _ := strings.Cut(r.RequestURI, "?")
		asked = strings.TrimSuffix(asked, "/")
		redirect(w, "./"+asked[strings.LastIndexByte(asked, '/')+1:]+"/")
	})
}

// loginPage asks for a token.
type loginPage struct {
	Fault string
	Next  string
	Ended bool // the session in which Next was asked for
}

func (d *dashboard) login(_ context.Context, r *request) (view, error) {
	return view{page: "login", title: "Log in", data: loginPage{Next: r.form.Get("next"), Ended: r.form.Has("ended")}}, nil
}

// refuse is the page for a request that access has refused.
func (d *dashboard) refuse(w http.ResponseWriter, r *http.Request, refusal access.Refusal) {
	asked := &request{Request: r, form: url.Values{}}
	switch {
	case refusal.Failed:
		_ = r.ParseForm() // what cannot be read leads to the first page
		d.answer(w, asked, view{page: "login", title: "Log in", status: refusal.Status, data: loginPage{Fault: refusal.Reason, Next: r.PostForm.Get("next")}})
	case refusal.Login && r.Method == http.MethodGet:
		query := url.Values{"next": {strings.TrimPrefix(r.URL.RequestURI(), "/")}}
		if refusal.Ended {
			query.Set("ended", "true")
		}
		redirect(w, with(root(r.URL.Path)+"login", query))
	default:
		title := map[int]string{http.StatusForbidden: "This is for operators", http.StatusTooManyRequests: "Too many requests",
			http.StatusInternalServerError: "Something went wrong"}[refusal.Status]
		advice := "Nothing was changed."
		if refusal.Ended {
			title, advice = "Your session has ended", "Nothing was changed. Log in, go back, and send it again."
		}
		if refusal.Code == "cross_origin" || title == "" {
			title = "This request is refused"
		}
		d.answer(w, asked, view{page: "failure", title: title, status: refusal.Status,
			data: failure{Code: operate.Code(refusal.Code), Message: refusal.Reason, Advice: advice}})
	}
}
