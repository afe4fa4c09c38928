// What the page shows before anybody types. All sentences were written for elmokit.

// A word in two senses, for words in context.
export const SENTENCES = {
  bank: "He sat on the bank of the river and watched the boats.\nThe bank raised its rates again on Thursday.\nShares in the bank fell after it warned on profits.\nReeds grow along the bank of the stream.",
  strike: "The pilots went on strike over pay.\nThe goal was his first strike of the season.\nThe air strike hit a bridge before dawn.\nMiners voted to end the strike after a week.",
  pitch: "Rain left the pitch heavy and slow.\nThe founders made their pitch to the investors.\nThe pitch of the note rose as the string was tightened.\nFans ran onto the pitch after the final whistle.",
  cell: "Each cell divides into two within an hour.\nHe spent the night in a cell at the station.\nThe company sells more cell phones than anyone.\nThe drug kills the cell but spares the tissue around it.",
};

// Words with twelve sentences, to find their senses.
export const USES = {
  bank: `The bank raised its rates again on Thursday.
He sat on the bank of the river and watched the boats.
She opened an account at the bank last year.
Reeds grow along the bank where the water is slow.
Shares in the bank fell after it warned on profits.
The flood washed away part of the bank below the bridge.
He borrowed the sum from a bank in the city.
They pulled the canoe up on the muddy bank.
The bank refused to lend the firm any more.
Willows lean over the bank and shade the stream.
Customers queued outside the bank to withdraw their savings.
The fisherman slipped down the bank into the water.`,
  party: `The party won most of the seats in parliament.
The party went on until three in the morning.
Leaders of the ruling party met on Sunday.
She wore a red dress to the party.
The opposition party called for new elections.
They gave a party for his fortieth birthday.
He left the party after losing the vote.
Guests at the party danced in the garden.
The party chose a new leader after losing the vote.
We danced at her birthday party until midnight.
Members of the ruling party voted for the reform.
There was cake and music at the party.`,
  interest: `The central bank kept interest rates unchanged.
She lost interest in the story after a few pages.
He pays ten percent interest on the loan.
The boy took an interest in old maps.
Higher interest costs hurt home buyers.
There was little interest in the speech.
The bond pays interest twice a year.
His interest in music began at school.
The loan carries interest of five percent a year.
He showed great interest in old maps.
She paid off the debt with interest.
Public interest in the trial faded quickly.`,
  bark: `The bark of a dog woke the neighbors.
The bark of the old oak is rough and gray.
His dog has a loud bark but never bites.
Deer strip the bark from young trees in winter.
We heard a bark behind the gate.
Insects live under the bark of dead trees.
The puppy gave a short bark and wagged its tail.
The medicine was once made from the bark of the willow.
One sharp bark from the hound warned the shepherd.
He carved his name in the bark of a beech.
The angry bark of the guard dog scared the thief.
Birch bark peels off in thin white sheets.`,
};

// Texts to search.
export const NEWS = `The central bank raised interest rates for the third time this year.
Heavy rain flooded the lower part of the town overnight.
The striker scored twice in the last ten minutes.
A new vaccine protects children against malaria.
Rail workers will stop work on Friday in a row over wages.
The orchestra opens its season with a symphony by Mahler.
Wheat prices rose after a dry spring in the north.
The museum has returned the statue to the village it was taken from.
Engineers found a crack in one of the bridge's cables.
The company will close two factories and cut a thousand jobs.
A telescope in Chile has photographed a planet around a young star.
The mayor promised more buses and fewer cars in the center.`;

// The texts of each view's form.
export const INPUTS = {
  layers: { text: "The bank raised its rates again on Thursday." },
  search: { query: "Loans are getting more expensive.", texts: null }, // NEWS unless the server was given texts
  senses: { word: "party", texts: USES.party, k: "" },
  pairs: { text: "The bank raised its interest rates on Thursday.", other: "On Thursday, the lender increased the cost of its loans." },
  classify: { text: "Shares of the airline fell after its pilots voted to strike over pay." },
  tag: { text: "Ada Lovelace met Charles Babbage in London in June 1833 and wrote to the Royal Society." },
  answer: {
    question: "Where was Marie Curie born?",
    passage: "Marie Curie was born in Warsaw in 1867. She moved to Paris in 1891 to study physics, chemistry and mathematics. In 1903 she shared the Nobel Prize in Physics with Pierre Curie and Henri Becquerel, and in 1911 she received the Nobel Prize in Chemistry for the discovery of radium and polonium.",
  },
};
