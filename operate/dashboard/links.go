package dashboard

import (
	"fmt"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// linksView are the runs that one has to do with, on its page.
type linksView struct {
	Parent *operate.Parent
	Batch  *operate.BatchView
	Lists  []linkList // those that are not empty
}

// linkList is one list of them.
type linkList struct {
	Title string
	Links []linkLine
	More  string // empty: the list is whole
	All   string // the list of runs that has them; empty: there is none
}

// linkLine is one of them.
type linkLine struct {
	operate.Link

	Icon string // of its state
	What string // is wanted of it
}

// linksMost bounds the runs of one list on a page.
const linksMost = 50

// linksOf is what a page shows of links.
func linksOf(id store.RunID, links *operate.RunLinks) *linksView {
	shown := &linksView{Parent: links.Parent, Batch: links.Batch}
	sources, children := links.MoreSources, operate.Figure{}
	if len(links.Children) > 0 {
		sources, children = children, sources
	}
	for _, list := range []struct {
		title string
		links []operate.Link
		more  operate.Figure
		all   string
	}{
		{"Depends on", links.DependsOn, sources, ""},
		{"Children", links.Children, children, "runs?parent=" + id.String()},
		{"Dependents", links.Dependents, links.MoreDependents, "runs?waiting_on=" + id.String()},
	} {
		if len(list.links) == 0 {
			continue
		}
		next := linkList{Title: list.title, More: moreText(len(list.links)-linksMost, list.more), All: list.all}
		for i := range list.links[:min(len(list.links), linksMost)] {
			next.Links = append(next.Links, lineOf(&list.links[i]))
		}
		shown.Lists = append(shown.Lists, next)
	}
	if shown.Parent == nil && shown.Batch == nil && len(shown.Lists) == 0 {
		return nil
	}
	return shown
}

func lineOf(link *operate.Link) linkLine {
	line := linkLine{Link: *link, Icon: "deleted"}
	if link.State != nil {
		line.Icon = link.State.String()
	}
	switch {
	case link.Step != nil:
		line.What = "in " + clip(60, *link.Step)
	case link.Met:
		line.What = fmt.Sprintf("on %s: met", *link.On)
	case link.AnyOf != 0:
		line.What = fmt.Sprintf("on %s of any: not met", *link.On)
	default:
		line.What = fmt.Sprintf("on %s: not met", *link.On)
	}
	return line
}

// moreText says how many are not shown: those that were left out, and others.
func moreText(left int, more operate.Figure) string {
	n := int64(max(left, 0)) + int64(more.N)
	switch {
	case n == 0:
		return ""
	case more.Is == operate.AtLeast:
		return fmt.Sprintf("and at least %d more", n)
	default:
		return fmt.Sprintf("and %d more", n)
	}
}
