package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// namedLane is a lane as transcripts write it.
type namedLane struct {
	name string
	head store.Head
}

// lanes lists lanes by priority and name, plain lines before isolated ones.
func (p *player) lanes(serves store.Serves) ([]namedLane, error) {
	heads, err := p.store.Heads(p.ctx, serves)
	var lanes []namedLane
	for _, h := range heads {
		name := fmt.Sprintf("%s%s/%s/%d", choose(h.Lane < 0, "-", ""), h.Queue, h.Job, h.Priority)
		lanes = append(lanes, namedLane{name, h})
	}
	slices.SortFunc(lanes, func(a, b namedLane) int {
		return cmp.Or(cmp.Compare(b.head.Priority, a.head.Priority), cmp.Compare(a.head.Queue, b.head.Queue),
			cmp.Compare(a.head.Job, b.head.Job), cmp.Compare(b.head.Lane, a.head.Lane))
	})
	return lanes, err
}

func (p *player) doHeads(c command) error {
	serves := p.serves
	if queues := c.list("queues"); queues != nil {
		serves.Queues = queues
	}
	if jobs := c.list("jobs"); jobs != nil {
		serves.Jobs = jobs
	}
	lanes, err := p.lanes(serves)
	for _, lane := range lanes {
		if lane.head.Waiting {
			p.say("%s %s", lane.name, due(lane.head.In))
		} else {
			p.say("%s nothing waits", lane.name)
		}
	}
	if len(lanes) == 0 {
		p.say("no lanes")
	}
	return err
}

// due rounds up to the next five seconds, so that a store whose clock runs by
// itself may take its time.
func due(in time.Duration) string {
	const step = 5 * time.Second
	if in <= 0 {
		return "due now"
	}
	if over := in % step; over > 0 {
		in += step - over
	}
	return fmt.Sprintf("due in %v", in)
}

func (p *player) doRun(c command) error {
	r, err := p.store.Run(p.ctx, p.runs[c.words[1]].ID)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s %v, attempt %d of %d", c.words[1], r.State, r.Attempt, r.MaxAttempts)
	add := func(condition bool, format string, args ...any) {
		if condition {
			line += ", " + fmt.Sprintf(format, args...)
		}
	}
	add(r.State == store.Pending, "%s", due(r.DueAt.Sub(p.now())))
	add(r.CrashCount > 0, "crash count %d", r.CrashCount)
	add(r.Isolated, "isolated")
	add(r.Priority != 0, "priority %d", r.Priority)
	add(r.Timeout > 0, "timeout %v", time.Duration(r.Timeout))
	add(r.Worker != nil, "worker %s", text(r.Worker))
	add(r.Schedule != nil, "schedule %s", text(r.Schedule))
	add(len(r.Tags) > 0, "tags %s", strings.Join(r.Tags, " "))
	add(r.Key != nil, "key %s", text(r.Key))
	add(string(r.Args) != "{}", "args %s", r.Args)
	add(r.Result != nil, "result %s", r.Result)
	add(r.FinishedAt != nil, "finished")
	add(r.Error != nil, "error: %s", text(r.Error))
	p.say("%s", line)
	for _, a := range r.Attempts {
		p.say("  attempt %d: %v by %s%s", a.Number, a.Outcome, a.Worker, choose(a.Error != nil, ": "+text(a.Error), ""))
	}
	return nil
}

func text(pointer *string) string {
	if pointer == nil {
		return ""
	}
	return *pointer
}

func (p *player) doList(c command) error {
	filter := store.Filter{Jobs: c.list("jobs"), Queues: c.list("queues"), Limit: c.number("limit", 0)}
	for _, word := range c.list("states") {
		state, err := store.ParseState(word)
		if err != nil {
			return err
		}
		filter.States = append(filter.States, state)
	}
	if before := c.text("before", ""); before != "" {
		filter.Before = p.runs[before].ID
	}
	page, err := p.store.Runs(p.ctx, filter)
	for i := range page.Runs {
		p.say("%s %v", p.names[page.Runs[i].ID], page.Runs[i].State)
	}
	p.say("%s", choose(page.Next == store.RunID{}, "the last page", "more before "+p.names[page.Next]))
	return err
}

func (p *player) doCounts(command) error {
	counts := p.counts()
	var words []string
	for _, state := range store.States() {
		words = append(words, fmt.Sprintf("%d %v", counts[state], state))
	}
	p.say("%s", strings.Join(words, ", "))
	return nil
}

func (p *player) doDeclare(c command) error {
	declaration := store.Declaration{Worker: p.worker("w1")}
	for _, name := range c.words[1:] {
		declaration.Schedules = append(declaration.Schedules, store.Schedule{
			Name: name, Rule: store.Every(c.duration("every", time.Hour)), Hash: c.text("hash", "h1"), Job: c.text("job", "mail"),
			Queue: store.DefaultQueue, Args: []byte(`{}`), MaxAttempts: store.DefaultMaxAttempts,
		})
	}
	return p.store.Declare(p.ctx, declaration)
}

func (p *player) doMaterialize(c command) error {
	var asked []string
	decide := func(now time.Time, s store.Schedule) store.Decision {
		state := "not planned yet"
		if !s.NextAt.IsZero() {
			state = due(s.NextAt.Sub(now))
		}
		if s.Waiting > 0 {
			state += ", has waited"
		}
		if s.Unfinished > 0 {
			state += fmt.Sprintf(", %d unfinished", s.Unfinished)
		}
		asked = append(asked, fmt.Sprintf("asked about %s generation %d, %s", s.Name, s.Generation, state))
		decision := store.Decision{NextAt: now.Add(time.Hour)}
		for _, line := range c.more {
			if line.words[0] == s.Name {
				decision = p.decision(line, now, s)
			}
		}
		return decision
	}
	made, err := p.store.Materialize(p.ctx, c.number("limit", 10), decide)
	p.sayLines(asked)
	var stored []string
	for _, id := range made.Runs {
		stored = append(stored, "stored "+p.names[id])
	}
	p.sayLines(stored)
	p.say("%d looked at, %s", made.Due, choose(made.Next < 0, "nothing planned", "next "+due(made.Next)))
	return err
}

// decision reads one line below materialize. An occurrence is key:run.
func (p *player) decision(c command, now time.Time, s store.Schedule) store.Decision {
	decision := store.Decision{Fault: c.text("fault", ""), NextAt: s.NextAt}
	if next := c.text("next", ""); next == "never" {
		decision.NextAt = time.Time{}
	} else if decision.Fault == "" {
		decision.NextAt = now.Add(c.duration("next", time.Hour))
	}
	if decision.Waiting = c.duration("waiting", 0); decision.Waiting > 0 {
		decision.NextAt = s.NextAt
	}
	if reason := c.text("skip", ""); reason != "" {
		decision.Skips = []store.Skip{{Reason: store.SkipReason(reason), First: s.NextAt, Last: now}}
	}
	for _, text := range c.list("occurrences") {
		key, name, _ := strings.Cut(text, ":")
		run := newRun()
		run.Job, run.Queue, run.Args, run.At = s.Job, s.Queue, s.Args, s.NextAt
		p.know(name, run)
		decision.Occurrences = append(decision.Occurrences, store.Occurrence{Key: key, Run: run})
	}
	return decision
}
