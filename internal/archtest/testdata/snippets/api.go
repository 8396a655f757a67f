package api

import (
	"net/http"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store/postgres"
)

func _(store *postgres.Store, mux *http.ServeMux, operatorToken, viewerToken string) {
	//snippet
	_ = err
}
