package batches

import (
	"context"
	"iter"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

type MailArgs struct{ To string }

type ReportArgs struct{ Batch store.BatchID }

type File struct{ URL string }

type PageArgs struct {
	URL  string
	Page int
}

func countPages(string) func(context.Context) (int, error) { return nil }

func report(store.BatchCounts, iter.Seq2[string, error]) (int, error) { return 0, nil }

var pageJob = durable.Returning[string](durable.NewJob[PageArgs]("page"))

func _(ctx context.Context, client *durable.Client, recipients []string, mailJob durable.Job[MailArgs], reportJob durable.Job[ReportArgs]) error {
	//snippet
	return err
}

//snippet
