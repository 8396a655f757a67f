// Package durabletest tests programs that use durable: it runs the real engine,
// on a store in memory, in virtual time.
//
// Run runs a test in virtual time, on the real engine:
//
//	func TestWelcome(t *testing.T) {
//		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
//			kit.Worker(func(w *durable.Worker) { durable.Register(w, Welcome, sendWelcome) })
//			receipt, _ := Welcome.Enqueue(t.Context(), kit.Client, WelcomeArgs{UserID: 42})
//			kit.RunDue()
//			durabletest.RequireState(t, kit.Store, receipt.ID, durable.Succeeded)
//		})
//	}
//
// Kit lets time pass and runs come to their end; a Worker can be cut off from its
// store, frozen, killed and stopped; RequireEnqueued and its like inspect any
// store; Perform executes one handler. The testing page of the documentation has
// an example of each. Authors of stores find the suite that a store has to pass in
// package store/storetest.
package durabletest
