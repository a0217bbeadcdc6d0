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
