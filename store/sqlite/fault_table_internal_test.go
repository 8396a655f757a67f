package sqlite

import (
	"slices"

	"github.com/durable-worker/durable-worker/internal/faulttest"
)

// Why a statement may stop something.
const (
	whyClaims   = "nothing is executed that cannot be claimed"
	whyEvaluate = "it is part of each evaluation of the schedules"
	whyChildren = "handlers enqueue with it"
	whyDeclares = "a worker that cannot declare itself does not start"
	whySweeps   = "it is part of each step of the sweep"
	whyReclaims = "it is part of each reclaim"
)

// needsClaim is what needs a claim.
var needsClaim = []faulttest.Need{
	faulttest.Execution, faulttest.Failure, faulttest.Death, faulttest.Report, faulttest.Child, faulttest.Complete, faulttest.Schedule, faulttest.Start,
}

func stop(because string, needs ...faulttest.Need) faulttest.Stop {
	return faulttest.Stop{Needs: needs, Because: because}
}

// stops are the statements that stop something while they fail, and have to.
var stops = map[string]faulttest.Stop{
	"Begin":  stop("every write needs it", faulttest.Every()...),
	"Commit": stop("every write needs it", faulttest.Every()...),

	"ClaimStep": stop(whyClaims, needsClaim...), "FindLease": stop(whyClaims, needsClaim...), "InsertLease": stop(whyClaims, needsClaim...),
	"ListHeads": stop(whyClaims, needsClaim...), "StartRuns": stop(whyClaims, needsClaim...), "UnreadyRange": stop(whyClaims, needsClaim...),

	"AdvanceSchedule": stop(whyEvaluate, faulttest.Schedule), "DueSchedules": stop(whyEvaluate, faulttest.Schedule),
	"InsertOccurrence": stop(whyEvaluate, faulttest.Schedule), "NextEvaluation": stop(whyEvaluate, faulttest.Schedule),
	"FindState": stop("it tells what the holder of a key is doing", faulttest.Child),

	"FindHolder": stop(whyChildren, faulttest.Child), "FindLane": stop(whyChildren, faulttest.Child), "GuardRun": stop(whyChildren, faulttest.Child),
	"InsertKeyed": stop(whyChildren, faulttest.Child), "TakeKey": stop(whyChildren, faulttest.Child),
	"Report": stop("handlers report with it", faulttest.Report),

	"DeclareWorker":   stop(whyDeclares, faulttest.Start),
	"FindWorkerStart": stop(whyDeclares, faulttest.Start),

	"DeleteAttempts": stop(whySweeps, faulttest.Sweep), "DeleteEnded": stop(whySweeps, faulttest.Sweep), "DeleteProgress": stop(whySweeps, faulttest.Sweep),
	"DeleteSteps": stop(whySweeps, faulttest.Sweep), "DeleteInputs": stop(whySweeps, faulttest.Sweep), "DeleteEdges": stop(whySweeps, faulttest.Sweep),
	"FindSweep": stop(whySweeps, faulttest.Sweep), "LastRun": stop(whySweeps, faulttest.Sweep), "MoveSweep": stop(whySweeps, faulttest.Sweep),
	"OwnRetentions": stop(whySweeps, faulttest.Sweep), "SweepAhead": stop(whySweeps, faulttest.Sweep),

	"ExpiredLeases": stop(whyReclaims, faulttest.Reclaim), "ExpiresBefore": stop(whyReclaims, faulttest.Reclaim), "FindReclaimable": stop(whyReclaims, faulttest.Reclaim),
	"ReclaimRun":    stop(whyReclaims, faulttest.Reclaim),
	"SettlePending": stop("retries are settled with it", faulttest.Failure),
	"SettleEnded":   stop("deaths are settled with it", faulttest.Death, faulttest.Cancel),
	"InsertAttempt": stop("failures and crashes are written with it", faulttest.Failure, faulttest.Death, faulttest.Cancel, faulttest.Reclaim),
	"InsertProblem": stop("deaths are written with it", faulttest.Death, faulttest.Cancel),
	"InsertReady":   stop("whatever becomes pending needs it", faulttest.Failure, faulttest.Reclaim, faulttest.Child, faulttest.Schedule),
	"RenewLease": stop("leases are renewed with it, and a worker that cannot keep what it has claims nothing",
		slices.Concat(needsClaim, []faulttest.Need{faulttest.Beat, faulttest.Crashless})...),
	"ListCancels": stop("workers learn with it what is to be cancelled", faulttest.Cancel),
}
