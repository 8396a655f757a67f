package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/operate/access"
	"github.com/durable-worker/durable-worker/operate/api"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A program serves the API beside its own handlers.
func ExampleNew() {
	operator := operate.New(memory.New(memory.Config{}), operate.Config{})
	handler, err := api.New(operator, api.Config{Auth: access.Tokens("a-token-of-the-operators-0123456789", "")})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", handler))

	request := httptest.NewRequest(http.MethodGet, "/api/v1/runs", nil)
	request.Header.Set("Authorization", "Bearer a-token-of-the-operators-0123456789")
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, request)
	fmt.Println(answer.Code)
	// Output: 200
}
