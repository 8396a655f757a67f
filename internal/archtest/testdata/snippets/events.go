package events

import (
	"net/http"
	"time"

	"github.com/durable-worker/durable-worker/observe/events"
)

func _(w http.ResponseWriter, r *http.Request, secret string, body []byte) {
	//snippet
}
