package postgres_test

import (
	"slices"

	"github.com/durable-worker/durable-worker/internal/faulttest"
)

// Why a statement may stop something.
const (
	claims   = "nothing is executed that cannot be claimed"
	evaluate = "it is part of each evaluation of the schedules"
	reports  = "handlers report with it"
	children = "handlers enqueue with it"
	inTx     = "it is part of the handler's own transaction, which the server ends at the first statement that fails"
	newLanes = "runs in a lane that this process has not used yet need its number"
	declares = "a worker that cannot declare itself does not start"
	sweeps   = "it is part of each step of the sweep"
	renews   = "leases are renewed with it, and a worker that cannot keep what it has claims nothing"
	parts    = "what may be refused alone is written between the two"
	reclaims = "it is part of each reclaim"
)

// executed is what needs a claim.
var executed = []faulttest.Need{
	faulttest.Execution, faulttest.Failure, faulttest.Death, faulttest.Report, faulttest.Child, faulttest.Complete, faulttest.Schedule, faulttest.Start,
}

func stop(because string, needs ...faulttest.Need) faulttest.Stop {
	return faulttest.Stop{Needs: needs, Because: because}
}

// stops are the statements that stop something while they fail, and have to.
var stops = map[string]faulttest.Stop{
	"ClaimRuns": stop(claims, executed...),
	"Heads":     stop(claims, executed...),
	"Guard":     stop("it is the first statement of most batches: it bounds what they wait for", faulttest.Every()...),
	"Idle":      stop("it is the first statement of most transactions", faulttest.Child, faulttest.Schedule, faulttest.Sweep),

	"DueSchedules":   stop(evaluate, faulttest.Schedule),
	"NextEvaluation": stop(evaluate, faulttest.Schedule),
	// AdvanceAlike does for a schedule whose last run has ended when the next is due. On a machine
	// that is busy the run may not have, and then each refusal has the schedule rest for seconds.
	"AdvanceSchedules": stop("schedules whose last run has not ended continue with it", faulttest.Schedule),
	"UnfinishedRuns":   stop(evaluate, faulttest.Schedule), "TryEvaluate": stop(evaluate, faulttest.Schedule, faulttest.Sweep),

	"BeginPart": stop(parts, faulttest.Schedule, faulttest.Sweep), "EndPart": stop(parts, faulttest.Schedule, faulttest.Sweep),

	"SweepDue": stop(sweeps, faulttest.Sweep), "BeginSweep": stop(sweeps, faulttest.Sweep), "SweepPlace": stop(sweeps, faulttest.Sweep),
	"OwnRetentions": stop(sweeps, faulttest.Sweep), "SweepAhead": stop(sweeps, faulttest.Sweep), "SweepRuns": stop(sweeps, faulttest.Sweep),
	"SweepRests": stop(sweeps, faulttest.Sweep), "MoveSweep": stop(sweeps, faulttest.Sweep),

	"ExpiredLease": stop(reclaims, faulttest.Reclaim), "EndBeats": stop(reclaims, faulttest.Reclaim), "ReclaimRuns": stop(reclaims, faulttest.Reclaim),
	"RenewLeases":    stop(renews, slices.Concat(executed, []faulttest.Need{faulttest.Beat, faulttest.Crashless})...),
	"CancelRequests": stop("workers learn with it what is to be cancelled", faulttest.Cancel),

	"Report": stop(reports, faulttest.Report), "HoldRun": stop(children, faulttest.Child), "EnqueueNewKeyed": stop(children, faulttest.Child),
	"GuardRun": stop(inTx, faulttest.Complete), "CompleteRun": stop(inTx, faulttest.Complete), "NotifyUnwatched": stop(inTx, faulttest.Complete),
	"EnqueueAlike": stop(inTx, faulttest.Complete),

	"Lanes": stop(newLanes, faulttest.Child, faulttest.Complete), "TouchQueues": stop(newLanes, faulttest.Child, faulttest.Complete),
	"ShareQueues": stop(newLanes, faulttest.Child, faulttest.Complete), "CreateLanes": stop(newLanes, faulttest.Child, faulttest.Complete),

	"DeclareJobs": stop(declares, faulttest.Start), "RegisterWorker": stop(declares, faulttest.Start),

	"SettleRuns": stop("runs that have not succeeded are settled with it", faulttest.Failure, faulttest.Death, faulttest.Cancel),
	"Verdicts":   stop("it tells whether the transaction of a handler has landed", faulttest.Complete),
}

// notSent are the statements that no worker sends, or only where something rare
// has happened that this test does not bring about.
var notSent = []string{
	// Of limited runs: the test has none.
	"AddTurns", "AdoptRuns", "AdoptWaiters", "AnnounceGate", "AnnounceGates", "AskOldest", "CancelWaiting", "CapLanes", "CapQueue", "CreateLimit", "CreateLimitLanes", "DeleteWaiting", "EndLapsed",
	"EndPenalty", "EndPermit", "EnqueueLimited", "Executing", "ExtendPermit", "FindLimits", "FreeWaiters", "GatePermits", "GateState", "GateUse", "GateWaiters",
	"HandOn", "HoldLeases", "InsertLimits", "InsertPermits", "InsertTurns", "Keep", "KnownLimitLanes", "LeaveLines", "LimitInUse", "ListLimits", "LiveKeys",
	"LockFreed", "LockGate", "LockGates", "LockLimits", "CheckLimits", "MakeGate", "MakeGates", "MendTurns", "MendWaiting", "MoveWaiters", "NameGates", "NextOfLimit", "OlderWorker", "Owners",
	"PenalizeGate", "PostponeRuns", "ReadGates", "ReadKept", "ReadLanes", "ReadLimits", "ReadLines", "RefuseRuns", "Release", "ReleaseFinished",
	"ReplaceLimits", "SampleWaiting", "SettleLimited", "SettleWhole", "StartAdmitted", "TakeRefunds", "TakeTurns", "TakeWaiting", "TouchLimits", "TurnHeads", "TurnsLeft", "Unkeep",
	"WriteLimit", "WriteRates",
	"EnterRounds", "KeysInRound", "LeaveRounds", "LockParent", "MendLines", "ReadEntries", "TakeTurnsInRounds",
	"DescribeGates", "GatesOfLines", "HeldByGate", "PenalizedGates", "SampleByLine", "WaitingBeside", "WaitingByLine",
	// Of steps, waits and inputs: the handlers of the test have none.
	"AddEdges", "BeginCalls", "CallersHeld", "ArrivedChildren", "AwaitEnds", "AwaitingChildren", "ChildrenOf", "CountLinks", "DependentsOf", "EdgesOfWaiters", "Holds", "ListDeaths", "LookAtRetried", "MeetAll", "MeetEdges", "OutcomesOf", "SourcesOf", "UnknownSources", "WaitersFor", "WaitersOf",
	"Arrived", "BeginWait", "DigestOf", "ForgetFailures", "ForgetSteps", "GiveUp", "InputOf", "InputsOf", "KeyHolder", "LockNoticed", "NextNotice", "PutBackNotices",
	"RecordStepIn", "RecordSteps", "Awaiting", "ReleaseReady", "ReleaseWaiting", "SendInput", "StepFates", "StepOf", "StepsOf", "ClockOfRuns", "TakeDeaths", "TakeNotices",
	// Of batches: the handlers of the test have none.
	"AddMembers", "AwaitBatch", "BatchOfRun", "BatchPage", "BatchesByID", "BatchesFor", "CancelBatch", "CancelMembers", "CloseBatch", "CloseOwned", "DecideBatch",
	"EdgesToBatches", "FoldChanges", "FoldedBatches", "LockBatches", "LockWhole", "MakeBatches", "MembersOf", "NoteEndOfOwner", "PruneChanges", "ReasonsOfMembers", "RunsOfBatch", "ShareBatches",
	// Of a failover that lost commits, and of calls that find what an earlier try has committed.
	"Seal", "StillHeld",
	// Of an Acquire that its caller has given up, of a lock whose row is locked, and of people who log out.
	"AuditSessionEnd", "DeleteRefusedLocks", "RefuseLock", "RenewFreeLocks",
	// Of many enqueues, or of many runs in one: the test has few.
	"NotifyAtCommit", "Unflushed", "Watch",
	// Of operators who look at runs and at problems.
	"AcknowledgeRuns", "BulkDeletes", "ExpiredLeases", "HolderOfRow", "KeyHolderOf", "LanesBefore", "LastAttempt", "LeaseOfRun", "ReadOnly", "OperatorSession", "PauseOfRun", "Problems", "ProblemsOf",
	"ExamineIdentities", "InvalidIndexes", "MayCallFunctions", "ExamineRole", "ExistingTables", "FirstDue", "Pin", "ScheduleOfRun", "TableUsers",
	"ClaimedRuns", "HeldRuns", "LeaveBeat", "MendReady", "ReclaimableLeases", "ReclaimableRuns", "SetUnfinished", "UnfinishedOfSchedule", "RefuseClaim", "Stranded", "Undealt",
	"AcquireLock", "AddUnfinished", "RequestCancels", "Attempts", "Audit", "AuditBulk", "AuditChange", "AuditReveal", "Begin", "BeginLook", "CancelPending", "Changes", "ChangesOf", "Checkpoint", "ClaimFreeRuns", "Commit", "CountMatching", "CountNotices", "CountRetried", "CountSome", "CountThese", "CountSucceededAtEnds", "CreateSchedule", "DeleteFinished", "DeleteLapsedWaits", "DeleteOldLocks", "DeletePending", "DeleteSchedule", "DeleteSkips", "DeleteWait", "DisableOrphans", "EditSchedule", "EnqueueKeyedRuns", "EnqueueNew", "EndLook", "EnqueueRuns", "EstimateRows", "ExamineLeases", "ExamineProcess", "ExamineQueues", "ExamineServer", "ExamineSnapshots", "ExamineTables", "FilteredLanes", "FindSchedule", "FloorOfChanges", "FloorOfRuns", "ForceReleaseLock", "FreeRuns", "HastenSchedules", "HoldSchedule", "InsertKeys", "InsertLocks", "InsertSkips", "Jobs", "KeepOccurrence", "KeyHolders", "Limits", "ListForced", "ListLocks", "ListQueues", "ListRuns", "ListSchedules", "ListThese", "ListWaits", "LockKey", "LockKeyOf", "LockKeys", "LockKnownQueue", "LockQueue", "LockSchedule", "MaterializeRuns", "MissingPrivileges", "NewestProblems", "NoteWait", "Operable", "PastChanges", "PastOccurrences", "PastRequests", "PastSkips", "PauseSchedule", "ProgressOf", "PruneWorkers", "ReleaseKey", "ReleaseLock", "RenewLocks", "ReplaceRun", "ResumeSchedule", "RetryRuns", "ReturnRuns", "RefuseChanged", "Rollback", "Run", "RunsOfKey", "RunsOfSchedule", "SampleProblems", "SampleReady", "SampleRuns", "Series", "SetKey", "SetLanesPaused", "SetMeta", "SetQueue", "StoredRuns", "SurveyLanes", "SurveyedAt", "TakeKey", "TakeReady", "UndoLook", "UndoPart", "Unfinished", "UnfinishedOf", "Unlimited", "Workers",
}
