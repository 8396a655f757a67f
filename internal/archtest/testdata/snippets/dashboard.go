package dashboard

import (
	"net/http"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store"
)

func _(store store.Store, mux *http.ServeMux, secret string) {
	//snippet
	_ = err
}
