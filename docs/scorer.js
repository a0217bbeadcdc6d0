// A page that was opened as a file may not read others, so its search shows titles without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Points for a page in the search: titles before objects before text.
var Scorer = {
  objNameMatch: 40,
  objPartialMatch: 10,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 100,
  partialTitle: 50,
  term: 5,
  partialTerm: 2,
};
