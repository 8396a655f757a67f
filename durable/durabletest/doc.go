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
// Kit advances time and lets runs end; you can cut a Worker off from its store, freeze, kill
// and stop it; RequireEnqueued and similar functions inspect any store; Perform executes one
// handler. The testing page of the documentation has an example of each. Authors of stores
// find the suite that a store has to pass in package store/storetest.
package durabletest
