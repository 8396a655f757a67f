package storetest

import (
	"errors"

	"github.com/durable-worker/durable-worker/store"
)

// doAct pauses, resumes or deletes a schedule as the operator ann.
func (p *player) doAct(c command) error {
	return p.store.ChangeSchedule(p.ctx, c.words[1], store.ScheduleAction(c.words[0]), "ann")
}

// doAsk requests a run of a schedule: ask schedule run [allow].
func (p *player) doAsk(c command) error {
	overlap := store.OverlapSkip
	if c.has("allow") {
		overlap = store.OverlapAllow
	}
	id := store.NewRunID()
	err := p.store.RunSchedule(p.ctx, c.words[1], id, overlap, "ann")
	if errors.Is(err, store.ErrConflict) {
		p.say("refused, one of its runs has not ended")
		return nil
	}
	run := newRun(func(r *store.NewRun) { r.ID = id })
	p.know(c.words[2], run)
	p.say("stored %s", c.words[2])
	return err
}

// doPast reports what became of a schedule, newest first.
func (p *player) doPast(c command) error {
	past, err := p.store.ScheduleHistory(p.ctx, c.words[1], c.number("limit", 10))
	for _, line := range past {
		switch line.Kind {
		case store.HistoryRun:
			p.say("run %s, %s, %v", p.names[*line.Run], choose(line.Occurrence == nil, "asked for", "occurrence "+text(line.Occurrence)), *line.State)
		case store.HistorySkip:
			p.say("skip, %s", text(line.Reason))
		case store.HistoryChange:
			reason := text(line.Reason)
			p.say("change, %s by %s", choose(len(reason) > 36, "a run asked for", reason), text(line.By))
		}
	}
	return err
}
