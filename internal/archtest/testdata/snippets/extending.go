package extending

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

type settings struct{ MailServer string }

type inviteAll struct{}

func (*inviteAll) Run(context.Context, *durablecmd.App) error { return nil }

type sender struct{ server string }

func (sender) send(context.Context, *durable.Run[string]) error { return nil }

func invite() durable.Job[string] { return durable.NewJob[string]("invite") }

func _(own *settings, about http.Handler, logged func(*slog.Logger) durable.Middleware) {
	//snippet
}

//snippet

func _(store store.Store, deadline durable.Middleware) {
	//snippet
	_ = w
}

var attempts interface {
	WithLabelValues(values ...string) interface{ Inc() }
}

//snippet

func welcome() durable.Job[string] { return durable.NewJob[string]("welcome") }

func _(ctx context.Context, store store.Store, enqueuer durable.Enqueuer, locks lock.Locks, args string, alarm func(job string, kind observe.LossKind)) {
	//snippet
	_, _, _, _, _ = client, w, receipt, err, locker
}

type service struct{}

func (service) Capture(_ context.Context, err error, job string, run durable.RunID, stack string) {}
func (service) Alarm(_ context.Context, text string)                                              {}

func _(tracker, pager service) {
	//snippet
	_ = h
}

type LetterArgs struct{}

var keyring durable.Codec

//snippet
