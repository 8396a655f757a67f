package api

import (
	"net/http"
)

// Patterns are those of all operations.
func Patterns() (patterns []string) {
	for _, r := range new(api).routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// Pattern is that of the operation that answers a request; empty: none does.
func Pattern(r *http.Request) string {
	mux := http.NewServeMux()
	for _, route := range new(api).routes() {
		mux.HandleFunc(route.pattern, func(http.ResponseWriter, *http.Request) {})
	}
	_, pattern := mux.Handler(r)
	return pattern
}
