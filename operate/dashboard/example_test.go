package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store/memory"
)

// The pages are mounted below any path. Who asks is said by a function of yours.
func ExampleNew() {
	operator := operate.New(memory.New(memory.Config{}), operate.Config{})
	defer operator.Close()
	auth := access.Func(func(r *http.Request) (access.Who, error) {
		if name := r.Header.Get("X-User"); name != "" {
			return access.Who{Name: name, Role: access.Viewer, Way: "header"}, nil
		}
		return access.Who{}, access.ErrNoCredentials
	})
	pages, err := dashboard.New(operator, dashboard.Config{Auth: auth, Title: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/durable/", http.StripPrefix("/ops/durable", pages))

	for _, name := range []string{"", "ada"} {
		r := httptest.NewRequest(http.MethodGet, "http://shop.example/ops/durable/", nil)
		r.Header.Set("X-User", name)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}
