package weather

import (
	"encoding/json"
	"io"
	"net/http"
)

// adminPrefix begins the paths of the lab's own requests; no bucket is called so.
const adminPrefix = "/_weather/"

// Admin returns the handler of the lab's requests alone:
//
//	GET  /_weather/stats            Stats, as JSON
//	POST /_weather/reset            counts and attempts to zero; ?objects=true forgets what was written, too
//	GET  /_weather/schedule         Schedule, as JSON
//	POST /_weather/schedule         change it: JSON, or the name of a preset
//
// ServeHTTP answers them, too.
func (s *Server) Admin() http.Handler { return http.HandlerFunc(s.admin) }

func (s *Server) admin(w http.ResponseWriter, r *http.Request) {
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // who does not read it has left
	}
	switch r.Method + " " + r.URL.Path {
	case "GET " + adminPrefix + "stats":
		reply(s.Stats())
	case "POST " + adminPrefix + "reset":
		s.Reset(r.URL.Query().Get("objects") == "true")
		reply(struct{}{})
	case "GET " + adminPrefix + "schedule":
		reply(s.Schedule())
	case "POST " + adminPrefix + "schedule":
		text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if len(text) > 0 && text[0] == '@' {
			http.Error(w, "weather: a schedule by its file is for the command line", http.StatusBadRequest)
			return
		}
		next, err := ParseSchedule(string(text))
		if err == nil {
			err = s.SetSchedule(next)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(next)
	default:
		http.NotFound(w, r)
	}
}
