package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// player executes the commands of one transcript and keeps its names.
type player struct {
	*fixture
	out     strings.Builder
	runs    map[string]store.NewRun
	names   map[store.RunID]string
	fences  map[store.RunID]lease.Fence // the highest seen
	claims  map[string]lease.ClaimID
	workers map[string]store.WorkerID
	holders map[string]string // the worker of a claim
	serves  store.Serves      // every queue and job the transcript has used
}

func newPlayer(f *fixture) *player {
	return &player{
		fixture: f,
		runs:    map[string]store.NewRun{},
		names:   map[store.RunID]string{},
		fences:  map[store.RunID]lease.Fence{},
		claims:  map[string]lease.ClaimID{},
		workers: map[string]store.WorkerID{},
		holders: map[string]string{},
	}
}

func (p *player) say(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// do executes one command, and lets a millisecond pass so that what follows
// is later on every store.
func (p *player) do(c command) error {
	verbs := map[string]func(command) error{
		"enqueue": p.doEnqueue, "claim": p.doClaim, "settle": p.doSettle, "renew": p.doRenew, "reclaim": p.doReclaim,
		"advance": p.doAdvance, "heads": p.doHeads, "run": p.doRun, "list": p.doList, "counts": p.doCounts,
		"declare": p.doDeclare, "materialize": p.doMaterialize, "sweep": p.doSweep,
		"pause": p.doAct, "resume": p.doAct, "delete": p.doAct, "ask": p.doAsk, "past": p.doPast,
	}
	verb, known := verbs[c.words[0]]
	if !known {
		return fmt.Errorf("no such command")
	}
	if err := verb(c); err != nil {
		return err
	}
	p.advance(time.Millisecond)
	return nil
}

func (p *player) doAdvance(c command) error {
	d, err := time.ParseDuration(c.words[1])
	p.advance(d)
	return err
}

func (p *player) doEnqueue(c command) error {
	var runs []store.NewRun
	for _, name := range c.words[1:] {
		run, again := p.runs[name]
		if !again {
			run = newRun()
			run.Job, run.Queue = c.text("job", run.Job), c.text("queue", run.Queue)
			run.Priority, run.MaxAttempts = c.number("priority", 0), c.number("attempts", run.MaxAttempts)
			run.After, run.Timeout = c.duration("after", 0), c.duration("timeout", 0)
			run.Tags = c.list("tags")
			if c.text("on-crash", "retry") == "dead" {
				run.OnCrash = store.CrashDead
			}
			if expires := c.duration("expires", 0); expires != 0 {
				run.ExpiresAt = p.now().Add(expires)
			}
			run.Key, run.Args = c.key(), []byte(c.text("args", string(run.Args)))
			p.know(name, run)
		}
		runs = append(runs, run)
	}
	receipts, err := p.store.Enqueue(p.ctx, runs...)
	for _, receipt := range receipts {
		p.say("%s %s", p.names[receipt.ID], choose(receipt.Existing, "existing", "stored"))
	}
	return err
}

// know gives a run its name.
func (p *player) know(name string, run store.NewRun) {
	p.runs[name], p.names[run.ID] = run, name
	if !slices.Contains(p.serves.Queues, run.Queue) {
		p.serves.Queues = append(p.serves.Queues, run.Queue)
	}
	if !slices.Contains(p.serves.Jobs, run.Job) {
		p.serves.Jobs = append(p.serves.Jobs, run.Job)
	}
}

func (p *player) worker(name string) store.WorkerID {
	if _, known := p.workers[name]; !known {
		p.workers[name] = newWorker(name)
	}
	return p.workers[name]
}

func (p *player) doClaim(c command) error {
	name := c.words[1]
	if _, again := p.claims[name]; !again {
		p.claims[name] = lease.NewClaimID()
	}
	p.holders[name] = c.words[2]
	request := store.ClaimRequest{
		Claim: p.claims[name], Worker: p.worker(c.words[2]), Alone: c.has("alone"),
		Duration: c.duration("lease", 30*time.Second), Limit: c.number("limit", 10),
	}
	lanes, err := p.lanes(p.serves)
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		if len(c.options["step"]) == 0 && (lane.head.Lane < 0) == c.has("isolated") {
			request.Steps = append(request.Steps, store.Step{Lane: lane.head.Lane, Take: request.Limit})
		}
	}
	for _, text := range c.options["step"] {
		step, err := p.step(text, lanes)
		if err != nil {
			return err
		}
		request.Steps = append(request.Steps, step)
	}
	claimed, err := p.store.Claim(p.ctx, request)
	for _, run := range claimed {
		p.sayClaimed(&run)
	}
	if len(claimed) == 0 {
		p.say("nothing")
	}
	return err
}

func (p *player) sayClaimed(run *store.ClaimedRun) {
	line := fmt.Sprintf("%s attempt %d of %d, fence %s", p.names[run.ID], run.Attempt, run.MaxAttempts,
		[]string{"falls", "same", "rises"}[cmp.Compare(run.Fence, p.fences[run.ID])+1])
	p.fences[run.ID] = run.Fence
	if run.CrashCount > 0 {
		line += fmt.Sprintf(", crash count %d", run.CrashCount)
	}
	if run.Timeout > 0 {
		line += fmt.Sprintf(", timeout %v", run.Timeout)
	}
	p.say("%s%s%s", line, choose(run.Lane < 0, ", isolated", ""), choose(run.Expired, ", expired", ""))
}

// step reads lane,from=r1,skip=1,take=2.
func (p *player) step(text string, lanes []namedLane) (store.Step, error) {
	name, rest, _ := strings.Cut(text, ",")
	i := slices.IndexFunc(lanes, func(l namedLane) bool { return l.name == name })
	if i < 0 {
		return store.Step{}, fmt.Errorf("no lane %s", name)
	}
	c, err := parse("step " + strings.ReplaceAll(rest, ",", " "))
	if err != nil {
		return store.Step{}, err
	}
	step := store.Step{Lane: lanes[i].head.Lane, Skip: c.number("skip", 0), Take: c.number("take", 10)}
	if from := c.text("from", ""); from != "" {
		step.From = p.record(p.runs[from].ID).DueAt
	}
	return step, nil
}

func (p *player) doSettle(c command) error {
	claim := c.words[1]
	settlement := store.Settlement{Claim: p.claims[claim], Worker: p.worker(p.holders[claim]), Last: c.has("last")}
	lines := c.more
	if len(lines) == 0 {
		lines = []command{{words: c.words[2:], options: c.options}}
	}
	for _, line := range lines {
		outcome, err := line.outcome()
		if err != nil {
			return err
		}
		settlement.Runs = append(settlement.Runs, store.Settled{ID: p.runs[line.words[0]].ID, Outcome: outcome})
	}
	words := map[store.Verdict]string{store.Applied: "applied", store.AlreadyApplied: "already applied", store.Rejected: "rejected"}
	for i, verdict := range p.settle(settlement) {
		p.say("%s %s", lines[i].words[0], words[verdict])
	}
	return nil
}

func (p *player) doRenew(c command) error {
	var claims []lease.ClaimID
	for _, name := range c.words[1:] {
		claims = append(claims, p.claims[name])
	}
	renewed, err := p.store.Renew(p.ctx, claims, c.duration("lease", 30*time.Second))
	for i, name := range c.words[1:] {
		p.say("%s %s", name, choose(slices.Contains(renewed, claims[i]), "renewed", "lost"))
	}
	return err
}

func (p *player) doReclaim(c command) error {
	request := store.ReclaimRequest{MaxCrashes: c.number("max", 4), Limit: c.number("limit", 10)}
	if horizon := c.text("horizon", ""); horizon != "" {
		request.Horizon = p.now().Add(c.duration("horizon", 0))
	}
	done, err := p.store.Reclaim(p.ctx, request)
	var lines []string
	for _, run := range done.Runs {
		lines = append(lines, fmt.Sprintf("%s %v, crash count %d, lost by %s%s", p.names[run.ID], run.State, run.CrashCount,
			run.Worker, choose(run.Lane < 0, ", isolated", "")))
	}
	p.say("%d expired", done.Leases)
	p.sayLines(lines)
	return err
}

// sayLines prints lines whose order means nothing.
func (p *player) sayLines(lines []string) {
	slices.Sort(lines)
	for _, line := range lines {
		p.say("%s", line)
	}
}

func choose(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

func (c command) has(word string) bool { return slices.Contains(c.words, word) }

func (c command) text(key, otherwise string) string {
	if values := c.options[key]; len(values) > 0 {
		return values[0]
	}
	return otherwise
}

func (c command) list(key string) []string {
	if text := c.text(key, ""); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

func (c command) number(key string, otherwise int) int {
	n, err := strconv.Atoi(c.text(key, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err)
	}
	return n
}

func (c command) duration(key string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(c.text(key, otherwise.String()))
	if err != nil {
		panic(err)
	}
	return d
}

func (c command) outcome() (store.Outcome, error) {
	kinds := map[string]store.OutcomeKind{
		"success": store.Success, "failure": store.Failure, "dead": store.Death,
		"cancelled": store.Cancellation, "snoozed": store.Snoozed, "handed-back": store.HandedBack,
	}
	if len(c.words) < 2 || kinds[c.words[1]] == 0 {
		return store.Outcome{}, fmt.Errorf("want a run and an outcome, not %q", c.words)
	}
	outcome := store.Outcome{Kind: kinds[c.words[1]], After: c.duration("after", 0), Error: c.text("error", "")}
	if result := c.text("result", ""); result != "" {
		outcome.Result = []byte(result)
	}
	return outcome, nil
}
