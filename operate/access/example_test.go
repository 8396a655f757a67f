package access_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/durable-worker/durable-worker/operate/access"
)

// A handler of your own is behind the same tokens as the API and the pages.
func ExampleHandler() {
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "operator: %v", access.WhoFrom(r.Context()).Role == access.Operator)
	})
	handler, err := access.Handler(inner, access.Config{Auth: access.Tokens("a-token-of-the-operators-0123456789", "")})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, token := range []string{"", "Bearer a-token-of-the-operators-0123456789"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		if token != "" {
			request.Header.Set("Authorization", token)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		fmt.Println(answer.Code)
	}
	// Output:
	// 401
	// 200
}
