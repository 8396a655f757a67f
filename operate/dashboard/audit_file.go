package dashboard

import (
	"bytes"
	"context"
	"encoding/csv"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// auditFileMost bounds the changes in a file.
const auditFileMost = 10_000

// auditFile is the changes that match as comma-separated values, the newest
// auditFileMost. Where there are older ones, the last line says how to ask for them.
func (d *dashboard) auditFile(ctx context.Context, r *request) (view, error) {
	filter, err := changeFilterOf(r)
	if err != nil {
		return view{}, err
	}
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	rows := [][]string{{"id", "at", "by", "kind", "subject", "action", "runs", "detail"}}
	filter.Limit = store.LargestPage
	for more := true; more && len(rows) <= auditFileMost; {
		list, err := r.do.Changes(ctx, filter)
		if err != nil {
			return view{}, err
		}
		for i := range list.Changes {
			c := &list.Changes[i]
			rows = append(rows, []string{strconv.FormatInt(c.ID, 10), c.At.UTC().Format(time.RFC3339Nano), harmless(c.Actor), harmless(c.Kind), harmless(c.Subject),
				harmless(c.Action), strconv.FormatInt(c.Runs, 10), harmless(string(c.Detail))})
		}
		if more = list.Next != nil; more {
			filter.Before = *list.Next
		}
	}
	if filter.Before != 0 && len(rows) > auditFileMost {
		rows = append(rows, []string{"", "", "", "", "", "older changes: cursor=" + strconv.FormatInt(filter.Before, 10), "", ""})
	}
	if err := out.WriteAll(rows); err != nil {
		return view{}, err
	}
	return view{page: "audit.csv", file: visible(text.Bytes())}, nil
}

// harmless is a text that no spreadsheet takes for a formula.
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
