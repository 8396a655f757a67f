package conn

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// NumberArray writes an array of numbers as PostgreSQL reads it from text.
func NumberArray[N int32 | int64](numbers []N) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte('}')
	return b.String()
}

// IDArray writes an array of ids as PostgreSQL reads it from text.
func IDArray(ids []uuid.UUID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return "{" + strings.Join(words, ",") + "}"
}

// JSONText writes texts and numbers.
func JSONText(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // cannot happen
		return "{}"
	}
	return string(text)
}
