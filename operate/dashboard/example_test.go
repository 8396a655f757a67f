package dashboard_test

import (
	"fmt"
	"net/http"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/dashboard"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A program serves the pages at a path of its own.
func ExampleNew() {
	operator := operate.New(memory.New(memory.Config{}), operate.Config{})
	pages, err := dashboard.New(operator, dashboard.Config{Auth: access.Tokens("a-token-of-the-operators-0123456789", ""), Title: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/durable/", http.StripPrefix("/ops/durable", pages))
}
