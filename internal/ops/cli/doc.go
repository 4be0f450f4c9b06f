// Package cli is what the command lines of both programs share: completion, the manual, and what is said of a mistake.
// All of it is read from the declarations of the verbs.
package cli
