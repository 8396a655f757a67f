package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

// noted is the scripted agent, with effects, and failures before its answers.
func noted(kit *durabletest.Kit, failures int) agent {
	a := scripted(&bytes.Buffer{})
	return agent{
		ask: func(ctx context.Context, history []Message) (Message, error) {
			if failures > 0 {
				failures--
				return Message{}, errors.New("429: too many requests")
			}
			kit.Effect(ctx, fmt.Sprint("ask ", len(history)))
			return a.ask(ctx, history)
		},
		tools: map[string]func(context.Context, string) (string, error){
			"weather": func(ctx context.Context, city string) (string, error) {
				kit.Effect(ctx, "weather")
				return a.tools["weather"](ctx, city)
			},
		},
	}
}

func begin(t *testing.T, kit *durabletest.Kit, a agent) durable.RunID {
	t.Helper()
	kit.Worker(func(w *durable.Worker) { durable.Register(w, answer(), a.handle) })
	receipt, err := answer().Enqueue(t.Context(), kit.Client, Question{Text: "How is Oslo?"})
	require.NoError(t, err)
	return receipt.ID
}

func TestTheAgentAnswers(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, play(t.Context(), filepath.Join(t.TempDir(), "agent.db"), &out))
	require.Equal(t, `the model is asked, with 1 messages
the model is asked, with 4 messages
It is raining in Oslo; the horoscope failed: there is no tool "horoscope".
`, out.String())
}

func TestAModelThatIsBusyIsAskedAgain(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		id := begin(t, kit, noted(kit, 3))
		require.Equal(t, durabletest.Tally{Snoozed: 3, Succeeded: 1}, kit.RunAll())
		durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		require.Equal(t, []string{"ask 1", "weather", "ask 4"}, kit.Effects(), "each turn is paid for once")
	})
}

func TestAnAgentWithoutAnAnswerEnds(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		asked := 0
		id := begin(t, kit, agent{ask: func(context.Context, []Message) (Message, error) {
			asked++
			return Message{From: "model", Calls: []Call{{"weather", "Oslo"}}}, nil
		}})
		kit.RunAll()
		require.Contains(t, *durabletest.RequireState(t, kit.Store, id, durable.Dead).Error, "no answer after 20 turns")
		require.Equal(t, mostTurns, asked)
	})
}

func TestAnAgentContinuesAfterItsSecondTurn(t *testing.T) {
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		got := durabletest.PerformAfter(t, kit.Store, []durabletest.Fact{
			durabletest.Stored("turn 0", Message{From: "model", Calls: []Call{{"weather", "Oslo"}, {"horoscope", "Oslo"}}}),
			durabletest.Stored("turn 0, tool 0: weather", "snowing"), durabletest.Failed("turn 0, tool 1: horoscope", errors.New("is cloudy")),
		}, answer(), noted(kit, 0).handle, Question{})
		require.JSONEq(t, `"It is snowing; the horoscope failed: is cloudy."`, string(got.Outcome.Result))
		require.Equal(t, []string{"ask 4"}, kit.Effects())
	})
}

// One tool at a time: what a tool does beside another is done again if its result is not stored
// when the process dies.
func TestTheAgentSurvivesCrashes(t *testing.T) {
	durabletest.CrashAfterEachStep(t, func(t *testing.T, kit *durabletest.Kit) {
		a := noted(kit, 0)
		a.ask = func(ctx context.Context, history []Message) (Message, error) {
			kit.Effect(ctx, fmt.Sprint("ask ", len(history)))
			if len(history) < 5 {
				return Message{From: "model", Calls: []Call{{"weather", "Oslo"}}}, nil
			}
			return Message{From: "model", Text: history[2].Text + ", and " + history[4].Text}, nil
		}
		id := begin(t, kit, a)
		kit.RunAll()
		record := durabletest.RequireState(t, kit.Store, id, durable.Succeeded)
		require.JSONEq(t, `"raining in Oslo, and raining in Oslo"`, string(record.Result))
	})
}
