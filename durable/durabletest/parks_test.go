package durabletest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// letter is a handler that is parked twice, with what it does wrong.
type letter struct {
	kit    *durabletest.Kit
	client *durable.Client
	wrong  func(ctx context.Context, run *durable.Run[mailArgs], park error) error
}

func (l letter) handle(ctx context.Context, run *durable.Run[mailArgs]) error {
	_, err := durable.Step(ctx, run, "welcome", func(ctx context.Context) (int, error) { l.kit.Effect(ctx, "welcome"); return 1, nil })
	if err != nil {
		return err
	}
	if err := run.Sleep(ctx, "a day", 24*time.Hour); err != nil {
		return l.wrong(ctx, run, err)
	}
	_, err = durable.Receive[string](ctx, run, "approved", time.Hour)
	if errors.Is(err, durable.ErrNoInput) {
		l.kit.Effect(ctx, "nudge")
		return nil
	}
	if err == nil {
		l.kit.Effect(ctx, "grant")
	}
	return err
}

func TestCheckParks(t *testing.T) {
	other := durable.NewJob[int]("other")
	returns := func(_ context.Context, _ *durable.Run[mailArgs], park error) error { return park }
	t.Run("a handler that returns every park is right, with an input and without", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			l := letter{kit, kit.Client, returns}
			require.Equal(t, durable.Succeeded, durabletest.CheckParks(kit, mailJob(), l.handle, mailArgs{}, durabletest.Sent("approved", "eva")).State)
			require.Equal(t, []string{"welcome", "grant"}, kit.Effects())
			require.Equal(t, durable.Succeeded, durabletest.CheckParks(kit, mailJob(), l.handle, mailArgs{}).State)
			require.Equal(t, []string{"welcome", "grant", "welcome", "nudge"}, kit.Effects())
		})
	})
	t.Run("branches that are not parked go on", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(_ *testing.T, kit *durabletest.Kit) {
			durabletest.CheckParks(kit, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
				parked := make(chan struct{})
				return durable.Parallel(ctx, run,
					func(ctx context.Context) error { defer close(parked); return run.Sleep(ctx, "a day", 24*time.Hour) },
					func(ctx context.Context) error {
						<-parked
						kit.Effect(ctx, "beside")
						if _, err := other.Enqueue(ctx, kit.Client, 1); err != nil {
							return err
						}
						_, err := durable.Step(ctx, run, "beside", func(context.Context) (int, error) { return 1, nil })
						return err
					})
			}, mailArgs{})
		})
	})
	for sentence, c := range map[string]struct {
		wrong func(l letter) func(ctx context.Context, run *durable.Run[mailArgs], park error) error
		says  string
	}{
		"a step after a park": {func(letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, run *durable.Run[mailArgs], _ error) error {
				_, err := durable.Step(ctx, run, "undo", func(context.Context) (int, error) { return 1, nil })
				return err
			}
		}, `durable.Step at parks_test.go:`},
		"another wait": {func(letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, run *durable.Run[mailArgs], _ error) error {
				return run.Sleep(ctx, "another day", time.Hour)
			}
		}, `durable.(*Run).Sleep at parks_test.go:`},
		"an enqueue through the run": {func(letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, run *durable.Run[mailArgs], _ error) error {
				_, err := other.Enqueue(ctx, run, 1)
				return err
			}
		}, `durable.Job.Enqueue at parks_test.go:`},
		"an enqueue through a client": {func(l letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, _ *durable.Run[mailArgs], park error) error {
				if _, err := other.Enqueue(ctx, l.client, 1); err != nil {
					return err
				}
				return park
			}
		}, `the enqueue of a run of job "other" comes after it was parked at "a day"`},
		"a send": {func(l letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, run *durable.Run[mailArgs], park error) error {
				within, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if _, err := mailJob().Send(within, l.client, run.ID, "approved", "me"); err != nil {
					return err
				}
				return park
			}
		}, `the input "approved", sent to another run, comes after it was parked at "a day"`},
		"an effect": {func(l letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(ctx context.Context, _ *durable.Run[mailArgs], park error) error {
				l.kit.Effect(ctx, "refund")
				return park
			}
		}, `the effect "refund" comes after it was parked at "a day"`},
		"nil in place of the park": {func(letter) func(context.Context, *durable.Run[mailArgs], error) error {
			return func(context.Context, *durable.Run[mailArgs], error) error { return nil }
		}, `handler ignored that it was parked at "a day"`},
	} {
		t.Run(sentence+" is found", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				said := fails(t, func(tb testing.TB) {
					kit, end := durabletest.NewKit(tb)
					defer end()
					l := letter{kit: kit, client: kit.Client}
					l.wrong = c.wrong(l)
					durabletest.CheckParks(kit, mailJob(), l.handle, mailArgs{}, durabletest.Sent("approved", "eva"))
				})
				require.Contains(t, said, "after a park a handler does nothing but return its error")
				require.Contains(t, said, c.says)
			})
		})
	}
	for sentence, c := range map[string]struct {
		handler handlerOf
		says    string
	}{
		"a handler that is not parked checks nothing": {func(context.Context, *durable.Run[mailArgs]) error { return nil }, "the handler was not parked"},
		"an input without a deadline has to be given": {func(ctx context.Context, run *durable.Run[mailArgs]) error {
			_, err := durable.Receive[int](ctx, run, "n", 0)
			return err
		}, `the run waits for the input "n": give CheckParks the input, with Sent`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				require.Contains(t, fails(t, func(tb testing.TB) {
					kit, end := durabletest.NewKit(tb)
					defer end()
					durabletest.CheckParks(kit, mailJob(), c.handler, mailArgs{})
				}), c.says)
			})
		})
	}
}
