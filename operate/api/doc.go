// Package api is the JSON API: what the commands of durable-worker do, over HTTP.
//
//	handler, err := api.New(operate.New(store, operate.Config{}), api.Config{Auth: access.Tokens(operator, viewer)})
//	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", handler))
//
// openapi.yaml describes it, and is served at /openapi.json. Everything happens through
// an operate.Operator, under the name of who asks. Begin reading at handler.go.
package api
