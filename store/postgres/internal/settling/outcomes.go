package settling

import (
	"encoding/json"
	"strconv"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// appendOutcome adds ,"id":[…] in the form that SettleRuns reads. The first
// byte of the whole becomes the opening brace.
func appendOutcome(to []byte, run *store.Settled) []byte {
	o := &run.Outcome
	to = append(to, ',', '"')
	to = append(to, run.ID.String()...)
	to = append(to, '"', ':', '[')
	to = strconv.AppendInt(to, int64(o.Kind.State()), 10)
	to = append(to, ',')
	to = strconv.AppendInt(to, conn.Micro(rules.DueAfter(o)), 10)
	to = append(to, ',')
	to = strconv.AppendInt(to, int64(rules.Refund(o)), 10)
	to = append(to, ',')
	if rules.Recorded(o) {
		to = strconv.AppendInt(to, int64(o.Kind), 10)
	} else {
		to = append(to, "null"...)
	}
	to = appendText(append(to, ','), o.Error)
	to = appendText(append(to, ','), o.Stack)
	result := ""
	if o.Kind == store.Success {
		result = string(o.Result)
	}
	to = appendText(append(to, ','), result)
	to = appendText(append(to, ','), o.Log)
	if to = append(to, ','); o.Took > 0 {
		to = strconv.AppendInt(to, conn.Micro(o.Took), 10)
	} else {
		to = append(to, "null"...)
	}
	return append(to, ']')
}

// appendText adds a JSON string; no text is null.
func appendText(to []byte, text string) []byte {
	if text == "" {
		return append(to, "null"...)
	}
	quoted, err := json.Marshal(text)
	if err != nil { // cannot happen: any string can be written
		return append(to, "null"...)
	}
	return append(to, quoted...)
}
