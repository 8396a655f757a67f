// Command import reads a file of many pages: each page is a run of its own, a few at a time, and a
// report follows when all of them have ended.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// File is what is imported.
type File struct {
	Name  string `json:"name"`
	Pages int    `json:"pages"`
}

// Page is one page of a File.
type Page struct {
	File   string `json:"file"`
	Number int    `json:"number"`
}

// Rows is how much was found on a Page.
type Rows struct {
	Count int `json:"count"`
}

// Report is what was imported in all.
type Report struct {
	Rows   int   `json:"rows"`
	Failed []int `json:"failed,omitempty"` // pages
}

// perFile lets so many pages of one file be read at a time.
func perFile() durable.Limit { return durable.NewLimit("import", durable.Semaphore(5)) }

func importFile() durable.ReturningJob[File, Report] {
	return durable.Returning[Report](durable.NewJob[File]("import", durable.Timeout(time.Minute)))
}

func readPage() durable.ReturningJob[Page, Rows] {
	return durable.Returning[Rows](durable.NewJob[Page]("read-page", durable.Timeout(time.Minute), durable.MaxAttempts(3), durable.Retry(durable.Fixed(10*time.Millisecond)),
		durable.Limited(perFile(), durable.KeyOf("{file}"))))
}

// reader reads pages. A page that was read twice has the same rows.
type reader interface {
	Read(ctx context.Context, file string, page int) (rows int, err error)
}

// handlers are the handlers of the two jobs.
type handlers struct{ reader reader }

func (h handlers) register(w *durable.Worker) {
	durable.RegisterReturning(w, importFile(), h.importFile)
	durable.RegisterReturning(w, readPage(), h.readPage)
}

// importFile adds a run for each page, and waits for all of them without a slot or a lease. If the
// process dies while it adds them, another one continues, and adds none twice.
func (h handlers) importFile(ctx context.Context, run *durable.Run[File]) (report Report, err error) {
	pages := run.NewBatch("pages")
	page := func(i int) Page { return Page{File: run.Args.Name, Number: i + 1} }
	if err := readPage().FanOut(ctx, run, pages, run.Args.Pages, page); err != nil {
		return report, err
	}
	if _, err := pages.Wait(ctx); err != nil {
		return report, err // a park until the last page has ended
	}
	number := 0
	for rows, err := range readPage().Results(ctx, run, pages) {
		number++
		if _, failed := errors.AsType[*durable.EndedError](err); failed {
			report.Failed = append(report.Failed, number)
			continue
		}
		if err != nil {
			return report, err
		}
		report.Rows += rows.Count
	}
	return report, nil
}

func (h handlers) readPage(ctx context.Context, run *durable.Run[Page]) (Rows, error) {
	count, err := h.reader.Read(ctx, run.Args.File, run.Args.Number)
	return Rows{Count: count}, err
}

// paper is a reader that cannot read page 13.
type paper struct{}

// Read counts the rows of a page.
func (paper) Read(_ context.Context, _ string, page int) (int, error) {
	if page == 13 {
		return 0, durable.Permanent(errors.New("a stain"))
	}
	return 100, nil
}

func main() {
	path := flag.String("db", "import.db", "database file")
	pages := flag.Int("pages", 200, "pages of the file")
	flag.Parse()
	if err := play(context.Background(), *path, *pages, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// play imports one file.
func play(ctx context.Context, path string, pages int, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{})
	handlers{paper{}}.register(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	stored, err := importFile().Enqueue(ctx, client, File{"ledger", pages})
	if err != nil {
		return err
	}
	report, err := importFile().Await(ctx, client, stored.ID)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d rows imported; pages that cannot be read: %v\n", report.Rows, report.Failed)
	stop()
	return <-ended
}
